"""The commands of Slurm for Iris: `sbatch` and so on, over the SDK."""
