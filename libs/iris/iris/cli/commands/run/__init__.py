"""Commands that submit jobs and wait for them."""
