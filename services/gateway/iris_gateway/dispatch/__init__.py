"""From a request to its endpoint: who asks, whether they may, and how it is answered."""
