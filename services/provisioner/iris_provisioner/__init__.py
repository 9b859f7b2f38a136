"""The provisioner: makes and deletes slices at providers, as the state service orders."""
