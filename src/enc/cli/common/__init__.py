"""What all commands share: context, output, errors, exit codes, profiles."""
