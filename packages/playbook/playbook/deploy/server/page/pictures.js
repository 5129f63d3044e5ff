// A picture with what was found in it: a mask over it, or boxes whose labels do not hide each other.

import { element } from "/page/dom.js";
import { placeLabels } from "/page/labels.js";

const SMALL = 128; // pixels of a side below which single pixels are shown

export async function load(address) {
  const image = element("img", { src: address, alt: "" });
  try {
    await image.decode();
  } catch {
    return null; // such as a TIFF, which only the server reads
  } finally {
    URL.revokeObjectURL(address);
  }
  return image;
}

export async function pictureOf(file, alt = "") {
  const image = await load(URL.createObjectURL(file));
  if (!image) return null;
  image.alt = alt;
  if (Math.max(image.naturalWidth, image.naturalHeight) < SMALL) image.className = "pixels";
  return image;
}

export function figure(layers, boxes, colourOf) {
  const { naturalWidth: width, naturalHeight: height } = layers[0];
  const block = element("figure", { className: Math.max(width, height) < SMALL ? "pixels" : "" }, ...layers);
  const frames = boxes.map((box) => {
    const frame = element("div", { className: "box" });
    frame.style.left = share(box.left / width);
    frame.style.top = share(box.top / height);
    frame.style.width = share((box.right - box.left) / width);
    frame.style.height = share((box.bottom - box.top) / height);
    frame.style.borderColor = colourOf(box.class);
    return frame;
  });
  const tags = boxes.map((box) => {
    const tag = element("span", { className: "tag", textContent: `${box.class} ${box.score.toFixed(2)}` });
    tag.style.backgroundColor = colourOf(box.class);
    tag.style.color = inkOn(colourOf(box.class));
    return tag;
  });
  block.append(...frames.toReversed(), ...tags); // the surest box on top
  if (boxes.length) new ResizeObserver(() => arrange(block, tags, boxes, width, height)).observe(block);
  const choose = (number) => {
    block.classList.toggle("chosen", number !== null);
    for (const [index, frame] of frames.entries()) {
      frame.classList.toggle("chosen", index === number);
      tags[index].classList.toggle("chosen", index === number);
    }
  };
  return { block, choose };
}

function arrange(block, tags, boxes, width, height) {
  const [x, y] = [block.clientWidth / width, block.clientHeight / height];
  const scaled = boxes.map((box) => ({ left: box.left * x, right: box.right * x, top: box.top * y, bottom: box.bottom * y }));
  const sizes = tags.map((tag) => ({ width: tag.offsetWidth + 2, height: tag.offsetHeight + 2 })); // with the outline
  for (const [number, place] of placeLabels(scaled, sizes, block.clientWidth, block.clientHeight).entries()) {
    tags[number].style.visibility = place ? "" : "hidden";
    if (place) Object.assign(tags[number].style, { left: `${place.left + 1}px`, top: `${place.top + 1}px` });
  }
}

const share = (value) => `${100 * value}%`;

function inkOn(colour) {
  const [red, green, blue] = [1, 3, 5].map((start) => {
    const value = parseInt(colour.slice(start, start + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "black" : "white"; // equal contrast of both
}

export function opacity(mask) {
  const slider = element("input", { type: "range", min: 0, max: 100, value: 50 });
  const show = () => (mask.style.opacity = share(slider.value / 100));
  slider.addEventListener("input", show);
  show();
  return element("label", { className: "tools" }, "Opacity of the mask ", slider);
}

export function swatch(colour) {
  const block = element("i", { className: "swatch" });
  block.style.backgroundColor = colour;
  return block;
}
