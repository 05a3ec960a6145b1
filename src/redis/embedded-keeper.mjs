/**
 * Keeps the embedded Redis of one data folder. A process of its own, started by whoever finds none.
 *
 *   contending  its socket listens; it looks whether another keeper's socket does
 *   idle        it is the only one, and waits for its first user
 *   starting    Redis loads and rewrites its AOF under a name that nobody else knows
 *   ready       Redis is reachable under its public name; if it dies, back to starting
 *   stopping    the last user has gone; who comes now is hung up on at the end and starts a new keeper
 *
 * A user is an open connection that has said "hold". The kernel closes it in whichever way the user dies, so there is
 * no count that could be wrong, no pid that could be another's and nothing left over after a reboot.
 *
 * The lock on the folder is the keeper's listening socket, and Redis inherits it: while either lives, a connection to
 * it succeeds and no other keeper begins. Plain JavaScript, because it runs from src/ as well as from dist/.
 */
import { spawn } from 'node:child_process'
import { closeSync, existsSync, openSync, readdirSync, readFileSync, renameSync, rmSync, statSync } from 'node:fs'
import { connect, createServer } from 'node:net'
import { join } from 'node:path'

const settings = JSON.parse(process.argv[2])
const { binary, folder, socketFolder, keeperSocket, startingSocket, redisSocket, logFile, maxMemoryBytes } = settings
const appendFolder = join(folder, 'appendonlydir')

const firstUserMs = 1_000 // then whoever started this process was killed; if it is only late, it starts another
const beatMs = 500 // who hears nothing for ten times as long takes this process for dead
const pollMs = 10
const stopMs = 30_000 // Redis only has an fsync left to do
const maxLogBytes = 1024 * 1024

let state = 'contending'
let redis
const connections = new Set()
const users = new Set()
/** Those who asked for something and have not got it yet: they hear the state with every beat. */
const waiting = new Set()

process.umask(0o077)
process.chdir(folder)
// A service manager ends every process of a service at once, but users still need Redis while they drain.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => {})

const door = createServer(welcome)
door.listen(keeperSocket, contend)
setInterval(() => {
  for (const connection of waiting) tell(connection, { state })
}, beatMs)

async function contend() {
  // Everyone listens first and looks afterwards, so of two at least one sees the other. Both may: then both leave, and
  // their users try again after a random wait.
  const others = keeperSockets().filter((path) => path !== keeperSocket)
  for (const path of others) if (await isListening(path)) return leave()
  for (const path of others) rmSync(path, { force: true })

  state = 'idle'
  setTimeout(() => users.size === 0 && state === 'idle' && leave(), firstUserMs)
  if (users.size > 0) serve()
}

function keeperSockets() {
  const names = readdirSync(socketFolder).filter((name) => name.startsWith('keeper-'))
  return names.map((name) => join(socketFolder, name))
}

function isListening(path) {
  return new Promise((resolve) => {
    const probe = connect(path)
    probe.once('connect', () => {
      resolve(true)
      probe.destroy()
    })
    // Any other refusal, such as a full queue, comes from a socket that someone has open.
    probe.once('error', (error) => resolve(error.code !== 'ECONNREFUSED' && error.code !== 'ENOENT'))
  })
}

function welcome(connection) {
  connections.add(connection)
  connection.setEncoding('utf8')
  connection.on('data', (words) => {
    for (const word of words.trim().split('\n')) {
      waiting.add(connection)
      if (word === 'hold') admit(connection)
      else dismiss(connection)
    }
  })
  connection.on('error', () => {})
  connection.on('close', () => {
    connections.delete(connection)
    waiting.delete(connection)
    dismiss(connection)
  })
}

function admit(user) {
  if (state === 'stopping') return
  user.isFirst = users.size === 0 && state !== 'ready' && state !== 'starting'
  users.add(user)
  if (state === 'idle') serve()
  else if (state === 'ready') give(user)
}

function give(user) {
  waiting.delete(user)
  tell(user, { state, shared: !user.isFirst })
}

function dismiss(user) {
  if (!users.delete(user)) return
  if (users.size > 0) {
    waiting.delete(user)
    user.end()
  } else if (state === 'starting' || state === 'ready') stop()
}

function tell(user, message) {
  user.write(`${JSON.stringify(message)}\n`)
}

async function serve() {
  state = 'starting'
  try {
    removeLeftovers()
    await startRedis().catch((error) => {
      const worthAnother = redis.signalCode !== null || tornBeforeAnEmptyFile()
      if (state === 'stopping' || !worthAnother) throw error
      return startRedis()
    })
    if (state === 'stopping') return
    renameSync(startingSocket, redisSocket)
    state = 'ready'
    for (const user of waiting) give(user)
  } catch (error) {
    if (state === 'stopping') return
    for (const user of users) tell(user, { state: 'failed', problem: error.message })
    users.clear()
    stop()
  }
}

function removeLeftovers() {
  // A rewrite that was killed leaves its half-written file behind, each time under another name.
  for (const place of [folder, appendFolder].filter(existsSync))
    for (const name of readdirSync(place)) if (name.startsWith('temp-')) rmSync(join(place, name))
  if (existsSync(logFile) && statSync(logFile).size > maxLogBytes) renameSync(logFile, `${logFile}.1`)
}

async function startRedis() {
  const hasData = existsSync(appendFolder)
  rmSync(startingSocket, { force: true })
  launch()
  await until(async () => (await ask('PING')).startsWith('+PONG'))
  if (hasData) await rewriteAof()
}

function launch() {
  const log = openSync(logFile, 'a')
  // Redis becomes the child itself. Beside it a shell waits on a pipe that only this process holds open: should this
  // process be killed, the pipe ends and Redis is told to stop, so it never runs with nobody to count its users.
  const script = '( read -r ended <&4 || kill -TERM $$ ) 3<&- & exec "$@" 4<&-'
  const child = spawn('/bin/sh', ['-c', script, 'sh', binary, ...redisSettings()], {
    // Node has no public name for the descriptor of a listening socket.
    stdio: ['ignore', log, log, door._handle.fd, 'pipe'],
  })
  closeSync(log)
  redis = child
  const pipe = child.stdio[4]
  pipe.on('error', () => {})
  child.once('error', (error) => {
    child.problem = `/bin/sh cannot be run: ${error.message}`
  })
  child.once('exit', (code, signal) => {
    pipe.end('ended\n')
    child.problem = `${binary} ended with ${signal ?? `code ${code}`}: ${lastLogLine()}`
    if (state === 'ready') serve()
    else if (state === 'stopping') leave()
  })
}

function redisSettings() {
  const values = {
    port: 0,
    unixsocket: startingSocket,
    unixsocketperm: 700,
    dir: folder,
    logfile: logFile,
    daemonize: 'no',
    save: '',
    appendonly: 'yes',
    appendfsync: 'everysec',
    'aof-load-truncated': 'yes',
    'maxmemory-policy': 'noeviction',
    maxmemory: maxMemoryBytes,
    'enable-protected-configs': 'no',
    'enable-debug-command': 'no',
    'enable-module-command': 'no',
  }
  return Object.entries(values).flatMap(([name, value]) => [`--${name}`, String(value)])
}

/**
 * A tail that was torn inside MULTI is cut after its last whole command, which leaves the MULTI open: what is appended
 * behind it would be dropped by the next load. A rewrite replaces the file before anyone can append.
 */
async function rewriteAof() {
  let answer = ''
  await until(async () => {
    answer = await ask('BGREWRITEAOF')
    return answer !== ''
  })
  if (!answer.startsWith('+')) throw new Error(`the AOF cannot be rewritten: ${answer.split('\r\n')[0]}`)
  let info = ''
  await until(async () => {
    info = await ask('INFO persistence')
    return info.includes('aof_rewrite_in_progress:0') && info.includes('aof_rewrite_scheduled:0')
  })
  if (!info.includes('aof_last_bgrewrite_status:ok')) throw new Error(`the AOF was not rewritten: ${lastLogLine()}`)
}

/**
 * A kill during that rewrite leaves the torn file followed by an empty one. Redis then repairs the torn file but refuses
 * to go on, because a later file might follow a hole; an empty one does not, so the second attempt may be trusted.
 */
function tornBeforeAnEmptyFile() {
  if (!existsSync(appendFolder)) return false
  const number = (name) => Number(/\.(\d+)\.incr\.aof$/.exec(name)?.[1] ?? 0)
  const newest = readdirSync(appendFolder).sort((a, b) => number(b) - number(a))[0]
  return /truncated file is not the last/.test(lastLogLine()) && statSync(join(appendFolder, newest)).size === 0
}

function ask(command) {
  return new Promise((resolve) => {
    let answer = ''
    const line = connect(startingSocket)
    line.setEncoding('utf8')
    line.on('data', (part) => {
      answer += part
    })
    line.on('error', () => {})
    line.on('close', () => resolve(answer))
    line.write(`${command}\r\nQUIT\r\n`)
  })
}

async function until(check) {
  while (!(await check())) {
    if (redis.problem) throw new Error(redis.problem)
    await new Promise((resolve) => setTimeout(resolve, pollMs))
  }
}

function lastLogLine() {
  if (!existsSync(logFile)) return 'its log is gone'
  const line = readFileSync(logFile, 'utf8').trim().split('\n').at(-1)
  return line.replace(/^\d+:\w .*? [#*.-] /, '')
}

function stop() {
  const mustEnd = redis && !redis.problem
  state = 'stopping'
  if (!mustEnd) return leave()
  redis.kill('SIGTERM')
  setTimeout(() => redis.kill('SIGKILL'), stopMs)
}

async function leave() {
  const hasStopped = state === 'stopping'
  state = 'stopping'
  if (hasStopped) rmSync(redisSocket, { force: true })
  rmSync(keeperSocket, { force: true })
  const last = hasStopped ? `${JSON.stringify({ state: 'stopped' })}\n` : ''
  await Promise.all([...connections].map((connection) => new Promise((resolve) => connection.end(last, resolve))))
  process.exit()
}
