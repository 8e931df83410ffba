"""The image whose kernel the guest runs."""

from __future__ import annotations

from tests.image.conftest import built, join_ca, recipe, request_of_tests, signing_key

__all__ = ["built", "join_ca", "recipe", "request_of_tests", "signing_key"]
