// Divides recordings into windows that a model takes, and shows what was answered to each by its time.

import { element } from "/page/dom.js";

// The windows of a recording, as files with their first second; itself where it is short, or only the server reads it.
export async function windowsOf(file, plan) {
  const whole = [{ file, start: 0, stop: null }];
  if (!plan?.sample_rate || !plan.seconds) return whole;
  let sound;
  try {
    const context = new OfflineAudioContext(1, 1, plan.sample_rate);
    sound = await context.decodeAudioData(await file.arrayBuffer());
  } catch {
    return whole;
  }
  const size = Math.max(Math.round(plan.seconds * plan.sample_rate), 1);
  const last = sound.length - size;
  if (last <= 0) return whole;
  const mono = mixed(sound);
  const starts = [];
  for (let start = 0; start < last; start += Math.max(Math.trunc(size * (1 - plan.overlap)), 1)) starts.push(start);
  return [...starts, last].map((start) => {
    const [first, stop] = [start / plan.sample_rate, (start + size) / plan.sample_rate];
    const name = `${file.name}, from ${first.toFixed(1)} s`;
    return { file: new File([wav(mono.subarray(start, start + size), plan.sample_rate)], name), start: first, stop };
  });
}

function mixed(sound) {
  const sum = new Float32Array(sound.length);
  for (let channel = 0; channel < sound.numberOfChannels; channel++) {
    const values = sound.getChannelData(channel);
    for (let place = 0; place < sum.length; place++) sum[place] += values[place] / sound.numberOfChannels;
  }
  return sum;
}

// A WAV file of 32-bit floats.
function wav(samples, rate) {
  const view = new DataView(new ArrayBuffer(44 + 4 * samples.length));
  const word = (place, text) => [...text].forEach((letter, index) => view.setUint8(place + index, letter.charCodeAt(0)));
  word(0, "RIFF");
  view.setUint32(4, 36 + 4 * samples.length, true);
  word(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, 3, true); // floats
  view.setUint16(22, 1, true);
  view.setUint32(24, rate, true);
  view.setUint32(28, 4 * rate, true);
  view.setUint16(32, 4, true);
  view.setUint16(34, 32, true);
  word(36, "data");
  view.setUint32(40, 4 * samples.length, true);
  samples.forEach((value, place) => view.setFloat32(44 + 4 * place, value, true));
  return view.buffer;
}

export function player(file) {
  return element("audio", { controls: true, src: URL.createObjectURL(file) });
}

// Windows {start, stop} with a text each; a click plays from there.
export function times(windows, texts, sound) {
  const digits = windows.length > 1 && windows[1].start < 1 ? 2 : 1;
  const entry = ({ start, stop }, number) => {
    const button = element("button", { type: "button" }, `${start.toFixed(digits)} to ${stop.toFixed(digits)} s `);
    button.append(element("strong", { textContent: texts[number] }));
    button.addEventListener("click", () => {
      sound.currentTime = start;
      sound.play();
    });
    return element("li", {}, button);
  };
  return element("ol", { className: "times" }, ...windows.map(entry));
}
