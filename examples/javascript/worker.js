// A seedzero worker with an environment of its own: node worker.js HOST:PORT [TOKEN_FILE]
// protos/seedzero/transport/inference.proto explains every rule that is named here.
"use strict";
const fs = require("fs");
const path = require("path");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const [address, tokenFile] = process.argv.slice(2);
const definition = loader.loadSync("seedzero/transport/inference.proto", {
  includeDirs: [path.join(__dirname, "../../protos")], // the import root
  keepCase: true, longs: Number, enums: String, defaults: true, oneofs: true,
});
const { Inference } = grpc.loadPackageDefinition(definition).seedzero.transport;
const { status } = grpc;
const PERMANENT = [
  status.INVALID_ARGUMENT, status.FAILED_PRECONDITION, status.OUT_OF_RANGE, status.UNAUTHENTICATED,
  status.PERMISSION_DENIED, status.UNIMPLEMENTED,
];

// --- the environment: ten cells, a reward at the right end, at most 30 steps ---------------------------------------

const CELLS = 10, LIMIT = 30;
const SPEC = {
  observation_shape: [CELLS], observation_dtype: "float32", observation_low: 0, observation_high: 1,
  num_actions: 2, num_players: 1, has_action_mask: false, frames_per_step: 1,
};

class Corridor {
  constructor(seed) { this.random = mulberry32(seed); this.over = true; }

  step(action) { // returns [reward, terminated, truncated]
    if (this.over) { // the action is ignored: next-step auto-reset
      this.cell = Math.floor(this.random() * (CELLS - 1)); this.steps = 0; this.over = false;
      return [0, 0, 0];
    }
    this.cell = Math.max(0, Math.min(CELLS - 1, this.cell + (action === 1 ? 1 : -1)));
    this.steps += 1;
    const terminated = this.cell === CELLS - 1 ? 1 : 0;
    const truncated = !terminated && this.steps >= LIMIT ? 1 : 0;
    this.over = Boolean(terminated || truncated);
    return [terminated, terminated, truncated];
  }
}

function mulberry32(a) { // random numbers in [0, 1) from a seed
  return () => {
    a = (a + 0x6d2b79f5) | 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

function message(group, sequence, envs, actions) { // steps one group; returns a WorkerMessage
  const E = envs.length;
  const observation = Buffer.alloc(4 * E * CELLS), reward = Buffer.alloc(4 * E);
  const terminated = Buffer.alloc(E), truncated = Buffer.alloc(E);
  envs.forEach((env, i) => {
    const [received, isTerminal, isCut] = env.step(actions ? actions.readInt32LE(4 * i) : 0);
    reward.writeFloatLE(received, 4 * i); terminated[i] = isTerminal; truncated[i] = isCut;
    observation.writeFloatLE(1, 4 * (i * CELLS + env.cell));
  });
  const step = {
    group, sequence, observation_shape: [E, CELLS], observation_dtype: "float32", reward, terminated, truncated,
  };
  return { step, observation };
}

// --- the protocol ---------------------------------------------------------------------------------------------------

let session = null; // {id, groups: [{envs, sequence, unanswered}]}
let pause = 100; // milliseconds
let beat = null, stream = null, steps = 0;
const workerId = `node-${process.pid}`;

function hello() {
  return { hello: {
    protocol_version: 2, worker_id: workerId, session_id: session ? session.id : "",
    roles: ["ROLE_TRAIN", "ROLE_EVALUATE"], environments: ["yours"], max_envs: 64,
  } };
}

function connect() {
  const client = new Inference(address, grpc.credentials.createInsecure(), { // a channel for each attempt
    "grpc.use_local_subchannel_pool": 1, "grpc.max_receive_message_length": 16 * 2 ** 20,
    "grpc.keepalive_time_ms": 5000, "grpc.keepalive_timeout_ms": 5000,
  });
  const metadata = new grpc.Metadata();
  if (tokenFile) metadata.set("authorization", `Bearer ${fs.readFileSync(tokenFile, "ascii").trim()}`);
  stream = client.Connect(metadata);
  stream.on("data", receive);
  stream.on("error", () => {}); // "status" follows
  stream.on("status", ({ code, details, metadata: trailer }) => {
    clearInterval(beat); client.close();
    console.log(`stream over: ${status[code]} ${trailer.get("seedzero-error")} ${details}`);
    if (code === status.OK) process.exit(0);
    if (PERMANENT.includes(code)) process.exit(1);
    setTimeout(connect, pause * (0.5 + Math.random() / 2));
    pause = Math.min(2 * pause, 5000);
  });
  stream.write(hello());
}

function receive(learner) {
  switch (learner.message) {
    case "assign": {
      const { session_id, role, num_groups, envs_per_group, seeds, resumed, heartbeat_seconds } = learner.assign;
      console.log(`session ${session_id}: ${num_groups} x ${envs_per_group} ${role}${resumed ? ", resumed" : ""}`);
      clearInterval(beat);
      beat = setInterval(() => stream.write({ heartbeat: {} }), 1000 * heartbeat_seconds);
      if (!resumed) {
        session = { id: session_id, groups: [] };
        for (let g = 0; g < num_groups; g++) {
          const envs = seeds.slice(g * envs_per_group, (g + 1) * envs_per_group).map((seed) => new Corridor(seed));
          session.groups.push({ envs, sequence: 0, unanswered: message(g, 0, envs, null) });
        }
      }
      stream.write({ spec: SPEC });
      break;
    }
    case "start":
      for (const { unanswered } of session.groups) if (unanswered) stream.write(unanswered);
      break;
    case "actions": {
      const { group, sequence, action } = learner.actions;
      const state = session.groups[group];
      if (!state.unanswered || sequence !== state.sequence) break; // an answer that came twice
      state.sequence += 1; steps += state.envs.length; pause = 100;
      state.unanswered = message(group, state.sequence, state.envs, action);
      stream.write(state.unanswered);
      break;
    }
    case "restart":
      console.log(`restart: ${learner.restart.reason}`);
      session = null;
      stream.write(hello());
      break;
    case "end":
      console.log(`end after ${steps} steps: ${learner.end.reason}`);
      stream.write({ goodbye: { reason: "training is over" } });
      stream.end();
      break;
  }
}

connect();
