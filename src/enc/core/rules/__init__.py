"""Access rules: manifests become policies, and policies decide who may do what."""
