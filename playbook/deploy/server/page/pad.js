// A canvas to draw on with a mouse, a pen or a finger.

export class Pad {
  #canvas;
  #context;
  #isEmpty = true;
  #isBlackOnWhite = false;
  pen = 24; // width of a line, in pixels of the canvas

  constructor(canvas, drawn) {
    this.#canvas = canvas;
    this.#context = canvas.getContext("2d");
    Object.assign(this.#context, { lineCap: "round", lineJoin: "round" });
    let last = null;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      canvas.setPointerCapture(event.pointerId);
      last = this.#place(event);
      this.#line(last, last); // a dot
      drawn();
    });
    canvas.addEventListener("pointermove", (event) => {
      if (last) this.#line(last, (last = this.#place(event)));
    });
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => (last = null));
    this.clear();
  }

  get isEmpty() {
    return this.#isEmpty;
  }

  clear() {
    this.#context.fillStyle = this.#isBlackOnWhite ? "white" : "black";
    this.#context.fillRect(0, 0, this.#canvas.width, this.#canvas.height);
    this.#isEmpty = true;
  }

  invert(isBlackOnWhite) {
    if (isBlackOnWhite === this.#isBlackOnWhite) return;
    this.#isBlackOnWhite = isBlackOnWhite;
    Object.assign(this.#context, { globalCompositeOperation: "difference", fillStyle: "white" });
    this.#context.fillRect(0, 0, this.#canvas.width, this.#canvas.height);
    this.#context.globalCompositeOperation = "source-over";
  }

  file() {
    return new Promise((resolve) => this.#canvas.toBlob(resolve, "image/png"));
  }

  #place(event) {
    const { left, top, width, height } = this.#canvas.getBoundingClientRect();
    const [x, y] = [(event.clientX - left) / width, (event.clientY - top) / height];
    return [x * this.#canvas.width, y * this.#canvas.height];
  }

  #line(from, to) {
    Object.assign(this.#context, { lineWidth: this.pen, strokeStyle: this.#isBlackOnWhite ? "black" : "white" });
    this.#context.beginPath();
    this.#context.moveTo(...from);
    this.#context.lineTo(...to);
    this.#context.stroke();
    this.#isEmpty = false;
  }
}
