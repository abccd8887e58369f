"""Measurements. `make bench` runs them all on fresh sandboxes and writes `bench/results/latest.{json,md}` and `bridge.svg`.

A figure that depends on the machine stands beside the limit measured in the same run; tests never assert on any of them.
"""
