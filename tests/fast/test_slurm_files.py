"""What Slurm is told."""

from slinky.sandbox.shape import Shape
from slinky.sandbox.slurm import accounts, external_node


def words(shape: Shape) -> dict[str, str]:
    (told,) = external_node("n1", "10.0.0.1", shape).calls()
    return dict(word.split("=", 1) for word in told.split())


def test_an_external_node_has_an_address_and_its_cpus_as_sockets_cores_and_threads() -> None:
    told = words(Shape())
    assert told["NodeAddr"] == "10.0.0.1"
    assert told["State"] == "EXTERNAL"
    for cpus in (1, 2, 3, 4, 6, 64, 96, 255):
        told = words(Shape(node_cpus=cpus))
        assert int(told["SocketsPerBoard"]) * int(told["CoresPerSocket"]) * int(told["ThreadsPerCore"]) == cpus == int(told["CPUs"])


def test_gpus_come_with_their_own_gres_conf() -> None:
    told = words(Shape(node_gpus=4))
    assert told["Gres"] == "gpu:4"
    assert told["GresConf"] == '"count=4,name=gpu,file=gpu-[0-3]"'
    assert words(Shape(node_gpus=1))["GresConf"] == '"count=1,name=gpu,file=gpu-0"'
    assert "Gres" not in words(Shape(node_gpus=0))


def test_accounts_exist_before_the_people_in_them() -> None:
    commands = [" ".join(command) for command in accounts()]
    assert commands.index(next(c for c in commands if "add account physics" in c)) < commands.index(
        next(c for c in commands if "user alice Account=physics" in c)
    )
