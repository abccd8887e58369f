"""Kubernetes objects made from what administrators wrote: pure functions from a `ClusterView` to plain mappings, ready to be applied."""
