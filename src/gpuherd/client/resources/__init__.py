"""The verbs of each subject, written once for both clients."""
