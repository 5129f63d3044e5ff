"""Everything that Playbook takes from Lightning's inside: private names, and counters that Lightning does not publish.

The rest of Playbook and all of `src` use public names alone, and these files import nothing else of Playbook.
tests/training/test_lightning.py lists each private name with the function that uses it, and fails where a release of
Lightning lacks one.
"""
