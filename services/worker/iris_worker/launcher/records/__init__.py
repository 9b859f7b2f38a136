"""What a worker and its launcher tell each other, and what is kept on disk."""
