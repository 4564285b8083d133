"""The operator's view of the cluster: watches and lists feed the records that decisions work on."""
