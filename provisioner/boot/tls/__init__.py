"""Certificates of boot hosts: a site's own authority, what it issues, how one authority takes another's place.

issue         authorities, certificates, cross-signing; pure
announcement  the signed document that adds authorities to those which images have
"""
