// Data: decodes what the page contains into arrays.

const report = JSON.parse(new TextDecoder().decode(await inflated(document.getElementById("data").textContent)));

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

// The inverse of encoding.quantised in Python: the highest code stands for "no value".
function quantised(packed) {
  const codes = new Uint16Array(bytes(packed.codes).buffer);
  const scale = (packed.high - packed.low) / 65534;
  return Float64Array.from(codes, (code) => (code === 65535 ? NaN : packed.low + code * scale));
}

function stepCounts(packed) {
  if (packed.values !== undefined) return new Float64Array(bytes(packed.values).buffer);
  return Float64Array.from({ length: packed.count }, (_, i) => packed.first + i * packed.by);
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
const framePieces = once((number) => document.getElementById(`frames-${number}`).textContent.split("\n"));
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
