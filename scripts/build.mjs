/**
 * Compiles src/ into dist/: JavaScript and types, the files that are not TypeScript beside them, and a stamp.
 *
 * dist/ is made elsewhere and swapped in whole, so nobody ever reads half of it. The stamp is a hash of everything the
 * build depends on: a changed, added or deleted source makes it stale, a mere touch or a checkout does not.
 */
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'

const self = fileURLToPath(import.meta.url)
export const root = path.dirname(path.dirname(self))

const copied = ['.lua', '.mjs']
const inputs = ['src', 'package.json', 'tsconfig.json', 'tsconfig.build.json', 'scripts/build.mjs']
const stampFile = 'dist/.built'

export function isBuilt(folder = root) {
  return readIfThere(path.join(folder, stampFile)) === stampOf(folder)
}

export function stampOf(folder = root) {
  const hash = createHash('sha256')
  for (const file of inputs.flatMap((input) => filesUnder(folder, input))) {
    const content = fs.readFileSync(path.join(folder, file))
    hash.update(`${file}\0${content.length}\0`).update(content)
  }
  return hash.digest('hex')
}

/** Answers the compiler's exit code; dist/ changes only when it is 0. */
export function build(folder = root) {
  for (const name of fs.readdirSync(folder)) {
    if (name.startsWith('.build-')) fs.rmSync(path.join(folder, name), { recursive: true, force: true })
  }
  // Named dist so that whatever ignores dist/ ignores it too; in the same folder so that a rename is enough.
  const made = path.join(folder, `.build-${process.pid}`, 'dist')
  try {
    const stamp = stampOf(folder)
    const code = compile(folder, made)
    if (code !== 0) return code
    copyOthers(folder, made)
    makeExecutable(path.join(made, 'cli/main.js'))
    fs.writeFileSync(path.join(made, path.basename(stampFile)), stamp)
    swapIn(made, path.join(folder, 'dist'))
    return 0
  } finally {
    fs.rmSync(path.dirname(made), { recursive: true, force: true })
  }
}

function compile(folder, outDir) {
  const compiler = path.join(folder, 'node_modules/typescript/bin/tsc')
  const args = [compiler, '-p', 'tsconfig.build.json', '--outDir', outDir]
  return spawnSync(process.execPath, args, { cwd: folder, stdio: 'inherit' }).status ?? 1
}

function copyOthers(folder, made) {
  for (const file of filesUnder(folder, 'src').filter((name) => copied.includes(path.extname(name)))) {
    const target = path.join(made, path.relative('src', file))
    fs.mkdirSync(path.dirname(target), { recursive: true })
    fs.copyFileSync(path.join(folder, file), target)
  }
}

function makeExecutable(file) {
  if (fs.existsSync(file)) fs.chmodSync(file, 0o755)
}

function swapIn(made, dist) {
  const old = `${made}-old`
  if (fs.existsSync(dist)) fs.renameSync(dist, old)
  fs.renameSync(made, dist)
}

/** Relative paths in a fixed order. */
function filesUnder(folder, name) {
  const full = path.join(folder, name)
  if (!fs.existsSync(full)) return []
  if (!fs.statSync(full).isDirectory()) return [name]
  return fs
    .readdirSync(full)
    .sort()
    .flatMap((child) => filesUnder(folder, path.join(name, child)))
}

function readIfThere(file) {
  return fs.existsSync(file) ? fs.readFileSync(file, 'utf8') : undefined
}

/**
 * Runs `work` while no other process does so for the same folder. Each puts up a file with its pid first and looks for
 * others' afterwards, so of two at least one sees the other and steps back; the file of a process that is gone does not
 * count. They lie outside the folder because `npm ci` and the build replace what is inside.
 */
export async function alone(work, folder = root) {
  const name = createHash('sha256').update(fs.realpathSync(folder)).digest('hex').slice(0, 16)
  const queue = path.join(os.tmpdir(), `busbar-setup-${process.getuid?.() ?? ''}-${name}`)
  const mine = path.join(queue, String(process.pid))
  for (;;) {
    fs.mkdirSync(queue, { recursive: true })
    fs.writeFileSync(mine, '')
    if (!fs.readdirSync(queue).some((other) => other !== String(process.pid) && isAtWork(queue, other))) break
    fs.rmSync(mine, { force: true })
    await delay(20 + 80 * Math.random())
  }
  try {
    return await work()
  } finally {
    fs.rmSync(mine, { force: true })
  }
}

const longestWorkMs = 3_600_000 // after that the pid belongs to somebody else

function isAtWork(queue, pid) {
  try {
    process.kill(Number(pid), 0)
    return Date.now() - fs.statSync(path.join(queue, pid)).mtimeMs < longestWorkMs
  } catch {
    return false
  }
}

if (process.argv[1] && fs.realpathSync(process.argv[1]) === self) process.exitCode = await alone(() => build())
