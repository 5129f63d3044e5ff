"""From the body of a request to the inputs in it: JSON, files, texts, rows, and arrays."""

from playbook.deploy.server.payloads.body import Body as Body
from playbook.deploy.server.payloads.body import Payload as Payload
from playbook.deploy.server.payloads.reading import parse as parse
