"""Logging in to a cluster: SASL, its mechanisms, Kerberos, Java key stores."""
