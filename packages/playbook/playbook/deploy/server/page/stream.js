// Pieces of a text while it is generated.

export async function* piecesOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (let chunk = await reader.read(); !chunk.done; chunk = await reader.read()) {
    const events = (rest + chunk.value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const { text = "", error } = JSON.parse(event.slice("data: ".length));
      if (error) throw new Error(error);
      yield text;
    }
  }
}
