"""What Slurm says of its things, as msgspec structs that name what people use and tolerate the rest.

Each struct says in `SCHEMA` which schema of the served OpenAPI document it reads, and in `SINCE` which of its fields came with a later version than v0.0.43
(they have their default before): the tests hold both against what a real server offers, in every version.
"""
