"""NodeSets: workers, each a pod with a slurmd. `plan` decides from a `Snapshot` what is to be done, and `controller` does it.

What must stay true: no pod goes while a job may run in it, unless the NodeSet's own deadline says so; where nobody can tell, nothing is deleted.
"""
