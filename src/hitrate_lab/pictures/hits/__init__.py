"""Pictures of which rows one method gets right: beside another, by class, by confidence."""
