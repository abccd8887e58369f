"""Why something waits, and whether an installation is sound: facts gathered on both sides, findings made from them by pure functions, words for people.

`gathering` asks Kubernetes and Slurm, in few calls with deadlines; `pods`, `jobs`, `nodes` and `doctor` judge; `catalogue` has every finding with what to do about it. A side that is broken or absent is a finding, never a traceback. docs/explain.md and docs/doctor.md are made from the catalogue.
"""
