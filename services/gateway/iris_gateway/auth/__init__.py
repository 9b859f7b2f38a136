"""Tokens, sign-in links and issuers: who a secret stands for."""
