// A client of `seedzero serve`: two players of a policy server play games of connect four against each other.
// node policy.js HOST:PORT [--a=NAME] [--b=NAME] [--games=100] [--openings=FILE] [--token=FILE] [--ca=FILE]
// `Policy` is the whole client; protos/seedzero/transport/inference.proto explains the messages.
"use strict";
const fs = require("fs");
const path = require("path");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const definition = loader.loadSync("seedzero/transport/inference.proto", {
  includeDirs: [path.join(__dirname, "../../protos")], // the import root
  keepCase: true, longs: Number, enums: String, defaults: true, oneofs: true,
});
const service = grpc.loadPackageDefinition(definition).seedzero.transport;

class Policy {
  // token: text, "": none. ca: a PEM certificate, null: plain text.
  constructor(address, { token = "", ca = null } = {}) {
    const credentials = ca ? grpc.credentials.createSsl(ca) : grpc.credentials.createInsecure();
    this.client = new service.Policy(address, credentials, { "grpc.max_receive_message_length": 16 * 2 ** 20 });
    this.metadata = new grpc.Metadata();
    if (token) this.metadata.set("authorization", `Bearer ${token}`);
  }

  describe() { // resolves to spec, players, agent and the rest of Description
    return new Promise((resolve, reject) => {
      this.client.Describe({}, this.metadata, (error, found) => (error ? reject(error) : resolve(found)));
    });
  }

  open(numRows, player = "") { // begins a session; resolves to its Welcome
    this.sequence = 0;
    this.waiting = null; // of the one request on its way
    this.stream = this.client.Act(this.metadata);
    this.stream.on("data", (reply) => {
      const { resolve } = this.waiting;
      this.waiting = null;
      resolve(reply[reply.message]);
    });
    this.stream.on("error", (error) => {
      clearInterval(this.beat);
      if (this.waiting) this.waiting.reject(error);
      this.waiting = null;
    });
    return this.send({ hello: { protocol_version: 1, player, num_rows: numRows } }).then((welcome) => {
      this.beat = setInterval(() => this.stream.write({ heartbeat: {} }), 1000 * welcome.heartbeat_seconds);
      return welcome;
    });
  }

  // rows: [{row, observation: Float32Array, mask: [bool] or null, reward, first}], all of one shape.
  // Resolves to Acted; its action is N int32, or floats of continuous actions.
  act(rows, shape, { findings = false } = {}) {
    const number = rows.length, size = shape.reduce((product, axis) => product * axis, 1);
    const observation = Buffer.alloc(4 * size * number), row = Buffer.alloc(4 * number), reward = Buffer.alloc(4 * number);
    rows.forEach((one, place) => {
      one.observation.forEach((value, index) => observation.writeFloatLE(value, 4 * (place * size + index)));
      row.writeInt32LE(one.row, 4 * place);
      reward.writeFloatLE(one.reward || 0, 4 * place);
    });
    const bytes = (flags) => Buffer.from(flags.map(Number));
    const fields = {
      sequence: this.sequence, row, observation_shape: [number, ...shape], observation_dtype: "float32", reward, findings,
      first: bytes(rows.map((one) => Boolean(one.first))), action_mask: bytes(rows.flatMap((one) => one.mask || [])),
    };
    return this.send({ rows: fields, observation }).then((acted) => {
      this.sequence += 1;
      return acted;
    });
  }

  close() {
    clearInterval(this.beat);
    this.stream.write({ goodbye: { reason: "done" } });
    this.stream.end();
    this.client.close();
  }

  send(message) {
    return new Promise((resolve, reject) => {
      this.waiting = { resolve, reject };
      this.stream.write(message);
    });
  }
}

// --- connect four: six rows, seven columns; the first side's stones are 1, the second one's 2 --------------------------

const HEIGHT = 6, WIDTH = 7, SHAPE = [HEIGHT, WIDTH, 4];

class ConnectFour {
  constructor() { this.board = new Uint8Array(HEIGHT * WIDTH); this.moves = 0; this.winner = 0; } // row 0 is the lowest

  get mover() { return this.moves % 2; }
  get isOver() { return this.winner > 0 || this.moves === HEIGHT * WIDTH; }
  mask() { return Array.from({ length: WIDTH }, (_, column) => this.board[(HEIGHT - 1) * WIDTH + column] === 0); }

  play(column) {
    const row = Array.from({ length: HEIGHT }, (_, r) => r).find((r) => this.board[r * WIDTH + column] === 0);
    const stone = this.mover + 1;
    this.board[row * WIDTH + column] = stone;
    this.moves += 1;
    const at = (r, c) => r >= 0 && r < HEIGHT && c >= 0 && c < WIDTH && this.board[r * WIDTH + c] === stone;
    for (const [dr, dc] of [[0, 1], [1, 0], [1, 1], [1, -1]]) {
      let length = 1;
      for (const sign of [1, -1]) for (let n = 1; at(row + sign * n * dr, column + sign * n * dc); n++) length += 1;
      if (length >= 4) this.winner = stone;
    }
  }

  observation() { // as OpenSpiel's planes: first side, second side, free; then the mover
    const planes = new Float32Array(HEIGHT * WIDTH * 4);
    this.board.forEach((stone, cell) => {
      planes[4 * cell + (stone === 0 ? 2 : stone - 1)] = 1;
      planes[4 * cell + 3] = this.mover;
    });
    return planes;
  }
}

async function main(address, options) {
  const { a = "", b = "", games = "100", openings, token, ca } = options;
  const access = { token: token ? fs.readFileSync(token, "ascii").trim() : "", ca: ca ? fs.readFileSync(ca) : null };
  const count = Number(games), tables = Array.from({ length: count }, () => new ConnectFour());
  // Pairs of games begin with the same two moves: those of a file, [[column, column], ...], or any.
  const begun = openings ? JSON.parse(fs.readFileSync(openings)) : tables.map((_, n) => [(5 * n + (n >> 3)) % WIDTH, (5 * n + 3 + (n >> 3)) % WIDTH]);
  tables.forEach((game, number) => begun[number >> 1].forEach((column) => game.play(column)));
  const players = [new Policy(address, access), new Policy(address, access)];
  const { env, spec } = await players[0].describe();
  if (env !== "spiel:connect_four" || spec.observation_shape.join() !== SHAPE.join()) {
    throw new Error(`the server plays ${env}; expected spiel:connect_four`);
  }
  await Promise.all(players.map((player, place) => player.open(count, [a, b][place])));
  while (tables.some((game) => !game.isOver)) {
    await Promise.all(players.map(async (player, place) => { // player 0 has the first side in games 0, 2, 4 ...
      const turns = [...tables.keys()].filter((n) => !tables[n].isOver && (tables[n].mover + n) % 2 === place);
      if (!turns.length) return;
      const rows = turns.map((n) => ({
        row: n, observation: tables[n].observation(), mask: tables[n].mask(), first: tables[n].moves < 4,
      }));
      const { action } = await player.act(rows, SHAPE);
      turns.forEach((n, index) => tables[n].play(action.readInt32LE(4 * index)));
    }));
  }
  const score = (game, number) => (game.winner === 0 ? 0 : (game.winner - 1 + number) % 2 === 0 ? 1 : -1);
  const outcomes = tables.map(score), of = (value) => outcomes.filter((outcome) => outcome === value).length;
  console.log(JSON.stringify({ games: count, wins: of(1), draws: of(0), losses: of(-1) }));
  players.forEach((player) => player.close());
}

if (require.main === module) {
  const [address, ...flags] = process.argv.slice(2);
  const options = Object.fromEntries(flags.map((flag) => flag.replace(/^--/, "").split("=")));
  main(address, options).catch((error) => {
    console.error(`${grpc.status[error.code] || "ERROR"}: ${error.details || error.message}`);
    process.exit(1);
  });
}

module.exports = { Policy, ConnectFour };
