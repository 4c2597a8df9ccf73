"""What every command needs: options, errors, exit codes, looking things up."""
