"""Uninstalling: everything that the bridge holds on both sides is let go, in order; what cannot be is named."""
