"""An attack's own test, run a second time with the defence taken away: it then has to fail, and by what it looks at.

A test of an attack asserts that nothing came of it. Where `DEFENCES` names the test, pytest collects it twice:
`[kept]`, as it stands, and `[without]`, in which the defence is patched out of the service's modules, and an assertion
of the test has to fail in the words that are expected. So the second run shows both: that the attack succeeds without
this defence, and that the test would notice. What no patch reaches (nginx' configuration, admission policies, another
process) has a test of its own, told in `catalogue/families.py` and `catalogue/without.py`.
"""
