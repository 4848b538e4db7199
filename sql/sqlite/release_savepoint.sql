RELEASE semel
