// A canvas to draw on with a mouse, a pen or a finger: white on black, or inverted.

export function makePad(canvas, onChange) {
  const context = canvas.getContext("2d");
  const pad = { pen: 25, isInverted: false, isEmpty: true }; // pen: width of a line, in pixels of the canvas
  let last = null;

  function fill(colour, operation = "source-over") {
    Object.assign(context, { fillStyle: colour, globalCompositeOperation: operation });
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.globalCompositeOperation = "source-over";
  }

  function drawTo(event) {
    const { left, top, width, height } = canvas.getBoundingClientRect();
    const place = [((event.clientX - left) * canvas.width) / width, ((event.clientY - top) * canvas.height) / height];
    Object.assign(context, { lineCap: "round", lineWidth: pad.pen, strokeStyle: pad.isInverted ? "black" : "white" });
    context.beginPath();
    context.moveTo(...(last ?? place));
    context.lineTo(...place); // a dot where a stroke begins
    context.stroke();
    last = place;
  }

  pad.clear = () => {
    fill(pad.isInverted ? "white" : "black");
    pad.isEmpty = true;
    onChange(true);
  };
  pad.invert = (isInverted) => {
    if (isInverted !== pad.isInverted) fill("white", "difference");
    pad.isInverted = isInverted;
  };
  pad.file = () => new Promise((resolve) => canvas.toBlob(resolve, "image/png"));

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    pad.isEmpty = false;
    drawTo(event);
    onChange(false);
  });
  canvas.addEventListener("pointermove", (event) => last && drawTo(event));
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => (last = null));
  pad.clear();
  return pad;
}
