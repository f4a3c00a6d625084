"""The actions on a cluster: requests of an operator or an administrator, each of which goes to the audit log."""
