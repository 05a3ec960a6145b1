import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs'
import { cp, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { installRemedy } from '../src/redis/embedded-server.ts'

const repository = fileURLToPath(new URL('..', import.meta.url))

/** A small project with the real scripts and compiler, and with npm, apt-get and redis-server of its own. */
let project: string
let bin: string

beforeEach(async () => {
  project = await mkdtemp(join(tmpdir(), 'busbar-setup-'))
  bin = join(project, 'bin')
  for (const name of ['scripts', 'package.json', 'tsconfig.json', 'tsconfig.build.json']) {
    await cp(join(repository, name), join(project, name), { recursive: true })
  }
  write('package-lock.json', '{}')
  write('src/cli/main.ts', "import { answer } from '../answer.ts'\nexport const shown: string = String(answer)\n")
  write('src/answer.ts', 'export const answer = 42\n')
  write('src/log/append.lua', 'return 1\n')
  write('src/redis/keeper.mjs', 'export {}\n')
  command(
    'npm',
    `echo "$*" >> npm-calls; mkdir -p node_modules && ln -sfn ${repository}node_modules/* ${repository}node_modules/@types node_modules/ && touch node_modules/.package-lock.json`,
  )
  command('redis-server', 'echo "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64"')
})

afterEach(() => rm(project, { recursive: true, force: true }))

function write(name: string, content: string, mode = 0o644): void {
  mkdirSync(join(project, name, '..'), { recursive: true })
  writeFileSync(join(project, name), content, { mode })
}

function command(name: string, script: string): void {
  write(`bin/${name}`, `#!/bin/sh\nPATH=/usr/bin:/bin\n${script}\n`, 0o755)
}

const read = (name: string) => readFileSync(join(project, name), 'utf8')
const has = (name: string) => existsSync(join(project, name))
const npmCalls = () => (has('npm-calls') ? read('npm-calls').trim().split('\n').length : 0)

function setUp(): { status: number | null; stdout: string; stderr: string } {
  return spawnSync(process.execPath, ['scripts/setup.mjs'], {
    cwd: project,
    env: { PATH: bin, TMPDIR: project },
    encoding: 'utf8',
  })
}

const silent = { status: 0, stdout: '', stderr: '' }

describe('setup', () => {
  test('makes a fresh checkout ready, one line per step, and then has nothing to do', () => {
    const first = setUp()
    expect(first).toMatchObject({ status: 0, stdout: 'Installing packages (npm ci)\nBuilding dist/\n', stderr: '' })
    expect(read('npm-calls')).toMatch(/^ci .*--include=dev/)

    const before = performance.now()
    expect(setUp()).toMatchObject(silent)
    expect(performance.now() - before).toBeLessThan(1_000)
    expect(npmCalls()).toBe(1)
  })

  test('installs again when the lockfile is newer, once, even if that lies in the future', () => {
    setUp()
    const future = Date.now() / 1000 + 3_600
    utimesSync(join(project, 'package-lock.json'), future, future)
    expect(setUp().stdout).toBe('Installing packages (npm ci)\n')
    expect(setUp()).toMatchObject(silent)
    expect(npmCalls()).toBe(2)
  })

  test('builds again when a source changes, appears or vanishes, but not for a touch', () => {
    setUp()
    write('src/answer.ts', 'export const answer = 43\n')
    expect(setUp().stdout).toBe('Building dist/\n')
    expect(read('dist/answer.js')).toContain('43')

    write('src/more.ts', 'export const more = 1\n')
    expect(setUp().stdout).toBe('Building dist/\n')
    expect(has('dist/more.js')).toBe(true)

    rmSync(join(project, 'src/more.ts'))
    expect(setUp().stdout).toBe('Building dist/\n')
    expect(has('dist/more.js')).toBe(false)

    utimesSync(join(project, 'src/answer.ts'), new Date(), new Date())
    expect(setUp()).toMatchObject(silent)
  })

  test('passes on the exit code of npm', () => {
    command('npm', 'exit 7')
    expect(setUp().status).toBe(7)
    expect(has('dist')).toBe(false)
  })

  test('two at once do the work once', async () => {
    const runs = [1, 2, 3].map(() =>
      spawn(process.execPath, ['scripts/setup.mjs'], { cwd: project, env: { PATH: bin, TMPDIR: project } }),
    )
    const ended = await Promise.all(runs.map((run) => once(run, 'exit')))
    expect(ended.map(([code]) => code)).toEqual([0, 0, 0])
    expect(npmCalls()).toBe(1)
    expect(setUp()).toMatchObject(silent)
  })
})

describe('setup without a server', () => {
  const mayInstall = process.getuid?.() === 0 && existsSync('/etc/debian_version')

  test('says how to install one on each system', () => {
    for (const name of ['redis-server', 'valkey-server']) command(name, 'echo "Redis server v=6.2.14 sha=00000000:0"')
    command('apt-get', 'exit 100')
    const { status, stderr } = setUp()
    expect(status).toBe(mayInstall ? 100 : 1)
    const lines = installRemedy.split('\n').slice(1)
    expect(lines.map((line) => line.split(' ').find((word) => /^(apt-get|dnf|apk|brew)$/.test(word)))).toEqual([
      'apt-get',
      'dnf',
      'apk',
      'brew',
    ])
    expect(stderr).toContain(lines.join('\n'))
  })

  test.skipIf(!mayInstall)('installs it on Debian without starting a service', () => {
    rmSync(join(bin, 'redis-server'))
    write('fresh-server', '#!/bin/sh\necho "Redis server v=7.0.15"\n', 0o755)
    const install = `[ "$2" = install ] && cp ${project}/fresh-server ${bin}/redis-server`
    command('apt-get', `echo "$RUNLEVEL $DEBIAN_FRONTEND $*" >> ${project}/apt-calls\n${install} || true`)
    expect(setUp()).toMatchObject({
      status: 0,
      stdout: 'Installing packages (npm ci)\nInstalling redis-server\nBuilding dist/\n',
    })
    expect(read('apt-calls').trim().split('\n')).toEqual([
      '1 noninteractive -qq update',
      '1 noninteractive -qq install -y --no-install-recommends redis-server',
    ])
  })

  test('takes a valkey-server as well', () => {
    rmSync(join(bin, 'redis-server'))
    command('valkey-server', 'echo "Valkey server v=8.0.1 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64"')
    expect(setUp().status).toBe(0)
  })
})

describe('build', () => {
  test('puts the other files beside the compiled ones and makes the command executable', () => {
    setUp()
    expect(read('dist/log/append.lua')).toBe('return 1\n')
    expect(has('dist/redis/keeper.mjs')).toBe(true)
    expect(read('dist/cli/main.js')).toContain("from '../answer.js'")
    expect(has('dist/cli/main.d.ts')).toBe(true)
    expect(statSync(join(project, 'dist/cli/main.js')).mode & 0o111).toBe(0o111)
  })

  test('leaves the old dist/ when the sources do not compile, and nothing else', () => {
    setUp()
    const names = readdirSync(project)
    const built = read('dist/answer.js')
    write('src/answer.ts', "export const answer: number = 'no number'\n")
    const { status, stdout } = setUp()
    expect(status).not.toBe(0)
    expect(stdout).toContain('src/answer.ts(1,14)')
    expect(read('dist/answer.js')).toBe(built)
    expect(readdirSync(project)).toEqual(names)
  })
})
