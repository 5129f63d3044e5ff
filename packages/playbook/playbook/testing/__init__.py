"""What tests of a project run with: the command line in this process, interrupted runs, groups of processes.

In `conftest.py`:

    from playbook.testing.command import command_line, workdir

    @pytest.fixture
    def cli(workdir, capfd):
        return command_line("src", capfd)
"""
