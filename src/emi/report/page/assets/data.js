// Data: decodes what the page contains into arrays.

const byId = (name) => document.getElementById(name);
const report = JSON.parse(new TextDecoder().decode(await inflated(byId("data").textContent)));

function inflated(base64) {
  const stream = new Blob([bytes(base64)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

function bytes(base64) {
  const text = atob(base64);
  const array = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) array[i] = text.charCodeAt(i);
  return array;
}

// The inverse of encoding.coded in Python: the highest code stands for "no value".
function decoded({ low, high, log }, codes) {
  const [start, end] = log ? [Math.log(low), Math.log(high)] : [low, high];
  const scale = (end - start) / 65534;
  return Float64Array.from(codes, (code) => {
    if (code === 65535) return NaN;
    const value = start + code * scale;
    return Math.min(high, log ? Math.exp(value) : value); // not above it by rounding
  });
}
const quantised = (packed) => decoded(packed, new Uint16Array(bytes(packed.codes).buffer));

function evenly(packed) {
  if (packed.values !== undefined) return new Float64Array(bytes(packed.values).buffer);
  return Float64Array.from({ length: packed.count }, (_, i) => packed.first + i * packed.by);
}

// The curves of one column of metrics.csv: JSON that describes them, then their codes, all high
// bytes before all low bytes.
async function curveBlock(env, column) {
  const [first, second] = await Promise.all(byId(`curves-${env}-${column}`).textContent.split("\n").map(inflated));
  const described = JSON.parse(new TextDecoder().decode(first));
  const planes = new Uint8Array(second);
  const size = planes.length / 2;
  const codes = Uint16Array.from({ length: size }, (_, i) => planes[i] * 256 + planes[size + i]);
  return { ...described, values: (curve) => (curve.values ??= decoded(curve, codes.subarray(curve.start, curve.start + curve.count))) };
}

// Curves and samples are decoded when they are first needed, and cached.
function once(make) {
  const kept = new Map();
  return (...parts) => {
    const key = parts.join("\n");
    if (!kept.has(key)) kept.set(key, make(...parts));
    return kept.get(key);
  };
}

const decodedSample = once((number) => {
  const packed = report.samples[number];
  const floats = (text) => new Float32Array(bytes(text).buffer);
  const integers = (text) => new Uint32Array(bytes(text).buffer);
  return {
    ...packed,
    x: quantised(packed.x),
    y: quantised(packed.y),
    step: integers(packed.step),
    bonus: floats(packed.bonus),
    return: floats(packed.return),
    error: floats(packed.error),
    frames: packed.frames && { here: integers(packed.frames.here), next: integers(packed.frames.next) },
  };
});

// Frames are stored in deflated pieces; a piece is inflated when one of its frames is needed.
const framePieces = once((number) => byId(`frames-${number}`).textContent.split("\n"));
const inflatedPiece = once((number, piece) => inflated(framePieces(number)[piece]));

// The pixels of one frame as ImageData, grey or in colour.
async function framePixels(number, index) {
  const { width, height, channels, perPiece } = report.samples[number].frames;
  const piece = await inflatedPiece(number, Math.floor(index / perPiece));
  const size = width * height * channels;
  const raw = new Uint8Array(piece, (index % perPiece) * size, size);
  const image = new ImageData(width, height);
  for (let i = 0; i < width * height; i++) {
    for (let c = 0; c < 3; c++) image.data[4 * i + c] = raw[i * channels + (channels === 3 ? c : 0)];
    image.data[4 * i + 3] = 255;
  }
  return image;
}

// Draws a frame once it is decoded, unless another frame was requested in the meantime.
async function showFrame(canvas, number, index) {
  canvas.dataset.frame = `${number}:${index}`;
  const image = await framePixels(number, index);
  if (canvas.dataset.frame !== `${number}:${index}`) return;
  canvas.width = image.width;
  canvas.height = image.height;
  canvas.getContext("2d").putImageData(image, 0, 0);
}
