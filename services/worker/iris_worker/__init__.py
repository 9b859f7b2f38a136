"""One host: runs what it is told, reports what happens, keeps nothing that counts. Decides nothing about tasks."""
