"""Events as people read them: in Slack, in Discord, on a phone, in the mail."""
