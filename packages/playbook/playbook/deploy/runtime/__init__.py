"""Runs an exported model without Playbook: this folder is copied into every artefact.

It needs NumPy, and only what the artefact uses: Pillow for images, soundfile for recordings, tokenizers for byte pairs,
onnxruntime or torch.

```python
from runtime import Artefact

model = Artefact("exports/cnn-digits")
print(model.predict(["seven.png"]))
```
"""

from .artefact import Artefact as Artefact
from .engines import load_engine as load_engine
from .errors import InputError as InputError
from .errors import Sample as Sample
