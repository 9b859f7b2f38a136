"""Who calls: tokens, sign-in links and the identity of a request."""
