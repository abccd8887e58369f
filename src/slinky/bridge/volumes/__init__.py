"""Volumes: where a pod's claims let it run, and binding them before the pod is.

`claims` judges, `binder` acts; what kube-scheduler's VolumeBinding, VolumeZone, VolumeRestrictions (ReadWriteOncePod) and NodeVolumeLimits say is what this package says.
"""
