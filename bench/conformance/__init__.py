"""The conformance kit: what a method's author runs before a reviewer does (`bench check`)."""
