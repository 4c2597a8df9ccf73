"""Commands that go to a machine: ssh, exec, cp, ssh-config, run, open."""
