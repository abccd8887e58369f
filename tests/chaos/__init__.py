"""Chaos: hundreds of pods and gangs while everything around the bridge fails by a schedule that a seed decides; then what was seen on both sides is held against what must always be true. `docs/chaos.md` tells how to run and read it.

One direction: `schedule` and `workload` (what will happen, from the seed alone) → `users`, `lines`, `servers` (who does it) → `observer`, `slurm_side` (what was seen of it) → `history` → `invariants`, `lives` (pure) → `report`.
"""
