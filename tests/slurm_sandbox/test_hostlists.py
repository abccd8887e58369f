"""Hostlists agree with Slurm's own, on 10,000 generated lists."""

import os
import random
import re
import subprocess
from collections.abc import Iterator

import pytest

from slinky.sandbox.handle import Sandbox
from slinky.slurm import compress, expand, shorten

pytestmark = pytest.mark.sandbox

COUNT = 10_000


def scontrol(sandbox: Sandbox, commands: list[str]) -> list[list[str]]:
    """The lines that each command printed; one scontrol for all, as it reads commands from its input."""
    process = subprocess.run(
        [sandbox.folder / "bin/scontrol"],
        input="\n".join(commands) + "\n",
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        cwd="/",
        env=os.environ | {"TERM": "dumb", "COLUMNS": "30000"},
    )
    parts = re.split(r"^scontrol: (.*)\n?", process.stdout, flags=re.MULTILINE)
    assert [command.strip() for command in parts[1::2]] == [*commands, ""]
    return [answer.splitlines() for answer in parts[2::2]][: len(commands)]


def digits(dice: random.Random) -> str:
    number = dice.choice([dice.randrange(12), dice.randrange(120), dice.randrange(95, 105), dice.randrange(2000)])
    return f"{number:0{dice.choice([1, 1, 1, 2, 3, 4])}}"


def ranges(dice: random.Random) -> Iterator[str]:
    for _ in range(dice.choice([1, 1, 2, 3])):
        low = digits(dice)
        if dice.random() < 0.4:
            yield low
        else:
            high = int(low) + dice.randrange(6)
            yield f"{low}-{high:0{dice.choice([1, len(low)])}}"


def expression(dice: random.Random) -> str:
    words = []
    for _ in range(dice.choice([1, 1, 2, 3])):
        word = dice.choice(["n", "node", "a-", "x1y", "r0c", "login"])
        for _ in range(dice.choice([0, 1, 1, 2, 3])):
            word += f"[{','.join(ranges(dice))}]" + dice.choice(["", "", "x", "-", "b2"])
        words.append(word)
    return ",".join(words)


def names(dice: random.Random) -> list[str]:
    prefixes = dice.sample(["n", "m", "r1n", "login", "a-", "x0y1z", ""], 2)
    found = []
    for _ in range(dice.choice([1, 2, 3, 5, 8])):
        prefix, number = dice.choice(prefixes), digits(dice)
        found += [f"{prefix}{int(number) + i:0{len(number)}}" for i in range(dice.choice([1, 1, 2, 4]))]
        if prefix and dice.random() < 0.2:
            found.append(prefix.rstrip("-") + dice.choice(["", "x"]))
    return [name for name in found if name]


def test_hostnames(sandbox: Sandbox) -> None:
    dice = random.Random(1)
    lists = [text for text in (expression(dice) for _ in range(COUNT)) if len(expand(text)) <= 400]
    assert len(lists) > COUNT * 0.9
    answers = scontrol(sandbox, [f"show hostnames {text}" for text in lists])
    wrong = [(text, expand(text)[:5], answer[:5]) for text, answer in zip(lists, answers, strict=True) if expand(text) != answer]
    assert wrong[:5] == []


def test_hostlist(sandbox: Sandbox) -> None:
    dice = random.Random(2)
    lists = [names(dice) for _ in range(COUNT)]
    answers = scontrol(sandbox, [f"show hostlist {','.join(found)}" for found in lists])
    wrong = [(found, compress(found), answer) for found, answer in zip(lists, answers, strict=True) if [compress(found)] != answer]
    assert wrong[:5] == []


def cloud_names(dice: random.Random) -> list[str]:
    """As clouds call their nodes: numbers in the middle, and letters drawn by lot."""
    found = []
    for _ in range(dice.choice([1, 2, 3, 5])):
        net, host, count = dice.randrange(256), dice.randrange(256), dice.choice([1, 1, 2, 4, 20])
        form = dice.choice(
            ["ip-10-0-{net}-{host}.eu-west-1.compute.internal", "gke-pool-{net}-a1b2c3d4-x{host}y2", "vm{net:03}-{host:02}x", "n{host}"]
        )
        found += [form.format(net=net, host=(host + step) % 256) for step in range(count)]
    dice.shuffle(found) if dice.random() < 0.2 else None
    return found


def test_slurm_reads_what_was_shortened_as_the_same_names_in_the_same_order(sandbox: Sandbox) -> None:
    dice = random.Random(3)
    lists = [cloud_names(dice) for _ in range(COUNT)]
    answers = scontrol(sandbox, [f"show hostnames {shorten(found)}" for found in lists])
    wrong = [(found, shorten(found), answer) for found, answer in zip(lists, answers, strict=True) if found != answer]
    assert wrong[:5] == []


def test_slurm_takes_a_range_as_large_as_ours_and_no_larger(sandbox: Sandbox) -> None:
    largest, larger = scontrol(sandbox, ["show hostnames n[1-65536]", "show hostnames n[1-65537]"])
    assert largest == expand("n[1-65536]")
    assert len(larger) <= 1
