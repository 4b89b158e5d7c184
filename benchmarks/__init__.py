"""Every speed that is claimed, beside its limit, measured in the same run."""
