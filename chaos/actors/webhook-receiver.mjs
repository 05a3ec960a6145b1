/**
 * A receiver of webhooks that nobody harms. Prints its port, then of every request
 *
 *   got <µs> <request> <port> <hook> <batch> <hash of the body> <ids of its events, joined by commas>
 *   answered <µs> <request> <how>   before anything is written: a status, "hang", "reset", "drip" or "trickle"
 *   closed <µs> <request>           its connection ended, or its answer was written to the end
 *
 * One request in eight is treated badly: answered 500, never, with a reset, with headers that come byte by byte, or with a body that does. One
 * in twenty is answered late. Of these only trickle is a 2xx: its status is there at once. Hears on stdin:
 *
 *   kind       from now on everything is answered 204
 *   stall      what comes within the next half second is answered half a second later
 *   mixed      as in the beginning
 */
import { createHash } from 'node:crypto'
import { writeSync } from 'node:fs'
import { createServer } from 'node:http'
import { createInterface } from 'node:readline'
import { nowUs } from '../harness/clock.mjs'

// A sequence waits for its head: with more of them it would never keep up.
const shares = { 500: 0.06, hang: 0.005, reset: 0.03, drip: 0.005, trickle: 0.02, late: 0.05 }
const longestMs = 20
const lateMs = 600
const dripMs = 100
const stallMs = 500

const say = (kind, ...fields) => void writeSync(1, `${kind} ${nowUs()} ${fields.join(' ')}\n`)
let isKind = false
let stallsUntil = 0
let requests = 0

function fateOf() {
  let chance = isKind ? 1 : Math.random()
  for (const [fate, share] of Object.entries(shares)) {
    chance -= share
    if (chance < 0) return fate
  }
  return 'soon'
}

const answers = {
  soon: (answer) => setTimeout(() => answer('204'), Math.random() * longestMs),
  late: (answer) => setTimeout(() => answer('204'), Math.random() * lateMs),
  500: (answer) => answer('500'),
  hang: (answer) => answer('hang'),
  reset: (answer) => answer('reset'),
  drip: (answer) => answer('drip'),
  trickle: (answer) => answer('trickle'),
}

const writes = {
  204: (response) => response.writeHead(204).end(),
  500: (response) => response.writeHead(500).end('not now'),
  hang() {},
  reset: (response) => response.socket.resetAndDestroy(),
  drip: (response) => byteByByte(response.socket, 'HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n'),
  trickle(response) {
    response.writeHead(200, { 'content-length': '100' })
    response.flushHeaders()
    byteByByte(response, 'x'.repeat(100))
  },
}

function byteByByte(stream, text) {
  let at = 0
  const timer = setInterval(() => {
    if (at === text.length || stream.destroyed) return void clearInterval(timer)
    stream.write(text[at])
    at += 1
  }, dripMs)
}

const idsIn = (body) => {
  const read = JSON.parse(body)
  return (read.events ?? read).map(({ id }) => id)
}

function receive(request, response) {
  requests += 1
  const n = requests
  const chunks = []
  request.on('data', (chunk) => chunks.push(chunk))
  request.on('end', () => {
    const body = Buffer.concat(chunks)
    const hash = createHash('sha256').update(body).digest('base64url')
    const id = request.headers['webhook-id']
    say('got', n, request.socket.remotePort, request.url.slice(1), id, hash, idsIn(body).join(','))
    response.once('close', () => say('closed', n))
    const answer = (how) => {
      if (response.destroyed) return
      say('answered', n, how)
      writes[how](response)
    }
    setTimeout(() => answers[fateOf()](answer), nowUs() < stallsUntil ? stallMs : 0)
  })
}

const server = createServer({ keepAliveTimeout: 30_000 }, receive)
server.listen(0, '127.0.0.1', () => say('listening', server.address().port))

createInterface({ input: process.stdin })
  .on('line', (line) => {
    if (line === 'stall') stallsUntil = nowUs() + stallMs * 1000
    else isKind = line === 'kind'
  })
  .on('close', () => process.exit(0))
