"""Logins: SASL and its mechanisms, Kerberos, and the key stores of Java."""
