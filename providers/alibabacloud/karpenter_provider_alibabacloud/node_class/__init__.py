"""The life of an ECSNodeClass: resolution into status and conditions, validation, its end."""
