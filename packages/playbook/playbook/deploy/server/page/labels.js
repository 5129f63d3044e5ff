// Where the labels of boxes stand, so that none hides another. Needs no browser.

const overlaps = (one, other) =>
  one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom;

// Boxes {left, top, right, bottom} and the sizes {width, height} of their labels, in pixels of a picture of that width
// and height: the top left corner of each label, or null where there is no room. Former boxes choose first.
export function placeLabels(boxes, sizes, width, height) {
  const taken = [];
  return boxes.map((box, number) => {
    const size = sizes[number];
    const inside = ([left, top]) => [
      Math.max(0, Math.min(left, width - size.width)),
      Math.max(0, Math.min(top, height - size.height)),
    ];
    const place = candidates(box, size)
      .map(inside)
      .map(([left, top]) => ({ left, top, right: left + size.width, bottom: top + size.height }))
      .find((label) => label.right <= width && label.bottom <= height && !taken.some((other) => overlaps(label, other)));
    if (!place) return null;
    taken.push(place);
    return { left: place.left, top: place.top };
  });
}

// Above the box first, then below, then within, from its left side to its right one.
function candidates(box, size) {
  const right = box.right - size.width;
  const columns = [box.left, right, (box.left + right) / 2];
  const rows = [box.top - size.height, box.bottom, box.top, box.bottom - size.height];
  for (let row = box.top + size.height; row < box.bottom - size.height; row += size.height) rows.push(row);
  return rows.flatMap((top) => columns.map((left) => [left, top]));
}
